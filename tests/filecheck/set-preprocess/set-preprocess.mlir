// RUN: tpusim opt -p 'set-preprocess{mean=127.5,127.5,127.5 scale=0.01,0.01,0.01 pixel_format=rgb resize_dims=256,256}' %s | filecheck %s
//
// The input states how it is made of images.

func.func @main(%in: tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> {
  %x = "top.Input"(%in) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("x")
  %y = "top.Sin"(%x) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("y")
  func.return %y : tensor<1x3x8x8xf32>
}

// CHECK:      module.state = "TOP_F32"
// CHECK:      %x = "top.Input"(%in) {channel_format = "nchw", do_preprocess = true, keep_aspect_ratio = false, keep_ratio_mode = "letterbox", mean = [1.275000e+02 : f64, 1.275000e+02 : f64, 1.275000e+02 : f64], pad_type = "center", pad_value = 0 : i64, pixel_format = "rgb", resize_dims = [256 : i64, 256 : i64], scale = [0.0099999997764825821 : f64, 0.0099999997764825821 : f64, 0.0099999997764825821 : f64], yuv_type = ""} : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<1x3x8x8xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x3x8x8xf32>
