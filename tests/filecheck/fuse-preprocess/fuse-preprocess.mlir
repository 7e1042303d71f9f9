// RUN: tpusim opt -p 'set-preprocess{mean=127.5,127.5,127.5 scale=0.01,0.01,0.01 pixel_format=rgb resize_dims=10,10},fuse-preprocess{chip=bm1684x customization_format=RGB_PACKED}' %s | filecheck %s
//
// The input takes frames of a camera, bytes whose channels lie side by side; the lowering makes the image of them.

func.func @main(%in: tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> {
  %x = "top.Input"(%in) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("x")
  %y = "top.Sin"(%x) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("y")
  func.return %y : tensor<1x3x8x8xf32>
}

// CHECK:      func.func @main(%in: tensor<1x10x10x3x!quant.uniform<u8:f32, 1.0>> {{.*}}) -> tensor<1x3x8x8xf32> {
// CHECK-NEXT: %x = "top.Input"(%in) {{.*}} mean = [1.275000e+02 : f64, {{.*}} tpusim.fused = true, customization_format = "RGB_PACKED"} : (tensor<1x10x10x3x!quant.uniform<u8:f32, 1.0>>) -> tensor<1x3x8x8xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<1x3x8x8xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x3x8x8xf32>
