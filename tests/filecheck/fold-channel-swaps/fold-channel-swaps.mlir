// RUN: tpusim opt -p 'fuse-preprocess{chip=bm1684x customization_format=BGR_PLANAR},processor-assign{chip=bm1684x mode=F16},choose-formats,propagate-ranges,convert-ops,fold-channel-swaps' %s | filecheck %s
//
// The swap of the channels of an image goes into the filter of the convolution that reads it.
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x3x4x4xf32>) -> tensor<1x4x4x4xf32> {
    %x = "top.Input"(%in) {channel_format = "nchw", do_preprocess = true, keep_aspect_ratio = false, keep_ratio_mode = "letterbox", mean = [0.000000e+00 : f64, 0.000000e+00 : f64, 0.000000e+00 : f64], pad_type = "center", pad_value = 0, pixel_format = "rgb", resize_dims = [4, 4], scale = [1.000000e+00 : f64, 1.000000e+00 : f64, 1.000000e+00 : f64], yuv_type = ""} : (tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<4x3x1x1xf32> loc("filter")
    %bias = "top.Weight"() : () -> tensor<4xf32> loc("bias")
    %y = "top.Conv"(%x, %filter, %bias) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0]} : (tensor<1x3x4x4xf32>, tensor<4x3x1x1xf32>, tensor<4xf32>) -> tensor<1x4x4x4xf32> loc("y")
    func.return %y : tensor<1x4x4x4xf32>
  }
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "F16"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.Input"(%0) {channel_format = "nchw", do_preprocess = true, keep_aspect_ratio = false, keep_ratio_mode = "letterbox", mean = [0.000000e+00 : f64, 0.000000e+00 : f64, 0.000000e+00 : f64], pad_type = "center", pad_value = 0 : i64, pixel_format = "bgr", resize_dims = [4 : i64, 4 : i64], scale = [1.000000e+00 : f64, 1.000000e+00 : f64, 1.000000e+00 : f64], yuv_type = "", tpusim.dtype = "uint8", customization_format = "BGR_PLANAR"} : (tensor<1x3x4x4x!quant.uniform<u8:f32, 1.0>>) -> tensor<1x3x4x4x!quant.uniform<u8:f32, 1.0>> loc("x_raw")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x3x4x4xf16> loc("x_rawx_preprocess_f16")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<3x1x1x1xf16> loc("x_preprocess_dwconv_weight")
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<3xf32> loc("x_preprocess_dwconv_bias")
// CHECK-NEXT: %5 = "tpu.Conv2D"(%2, %3, %4) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], group = 3 : i64{{.*}} -> tensor<1x3x4x4xf16> loc("x_preprocess_dwconv")
// CHECK-NEXT: %6 = "top.Weight"() : () -> tensor<4xf32> loc("bias")
// CHECK-NEXT: %7 = "top.Weight"() : () -> tensor<4x3x1x1xf16> loc("filter_swap_channel")
// CHECK-NEXT: %8 = "tpu.Conv2D"(%5, %7, %6) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x4x4xf16> loc("y")
// CHECK-NEXT: %9 = "tpu.Cast"(%8) {{.*}} -> tensor<1x4x4x4xf32> loc("y_f32")
// CHECK-NEXT: func.return %9 : tensor<1x4x4x4xf32>
