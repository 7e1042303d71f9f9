// RUN: tpusim opt -p 'processor-assign{chip=bm1690 mode=F8E5M2},choose-formats,propagate-ranges,convert-ops,fuse-tpu-ops' %s | filecheck %s
//
// A product of 8-bit floats and a number has the type of the cast that reads it.

func.func @main(%in1: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %x = "top.Input"(%in1) : (tensor<2x5xf32>) -> tensor<2x5xf32> loc("x")
  %y = "top.MulConst"(%x) {const_val = 7.000000e-01 : f64} : (tensor<2x5xf32>) -> tensor<2x5xf32> loc("y")
  func.return %y : tensor<2x5xf32>
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<2x5xf32>) -> tensor<2x5xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<2x5xf8E5M2> loc("x_f8e5m2")
// CHECK-NEXT: %3 = "tpu.MulConst"(%2) {const_val = 7.000000e-01 : f64{{.*}} : (tensor<2x5xf8E5M2>) -> tensor<2x5xf32> loc("y_f32")
// CHECK-NEXT: func.return %3 : tensor<2x5xf32>
